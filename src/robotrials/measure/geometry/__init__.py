"""Did the object really get there: boxes, poses, reconstruction from RGB-D, and scores of a placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.geometry.box import *
    from robotrials.measure.geometry.mask import *
    from robotrials.measure.geometry.reconstruct import *
    from robotrials.measure.geometry.register import *
    from robotrials.measure.geometry.score import *
    from robotrials.measure.geometry.solid import *
    from robotrials.measure.geometry.view import *

_PLACES = {
    '.box': (
        'Box CONE CYLINDER Cylinder NO_SYMMETRY PoseError SPHERE Shape Symmetry alignment_angle '
        'alignment_error box_from_pose box_iou box_iou_arrays box_iou_pairs box_pose_error box_symmetry '
        'cyclic dihedral pose_error rotation_from_quaternion volumetric_iou'
    ),
    '.mask': 'ObjectModel color_mask',
    '.reconstruct': (
        'MaskSource ObjectCheck Reconstruction ResetCheck ResetFault check_reset identify reconstruct_box '
        'reconstruct_boxes score_views'
    ),
    '.register': 'Registration locate_solid',
    '.score': (
        'PlacementScore PlacementSummary PlacementTrial SplitScore SplitSummary expected_iou_over_splits '
        'placement_trial recorded_placement score_placement score_recorded_pose summarize_placements '
        'with_placement'
    ),
    '.solid': 'PlacedSolid SolidModel box_model cloud_model mesh_model pack_solid read_solid',
    '.view': 'RgbdView STEREO_NOISE StereoNoise VoxelCloud fuse_views stereo_depth view_from_camera voxel_iou',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
