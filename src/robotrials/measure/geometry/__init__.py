"""Did the object really get there: boxes, poses, reconstruction from RGB-D, and scores of a placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.geometry.box import (
        CONE,
        CYLINDER,
        NO_SYMMETRY,
        SPHERE,
        Box,
        Cylinder,
        PoseError,
        Shape,
        Symmetry,
        alignment_angle,
        alignment_error,
        box_from_pose,
        box_iou,
        box_iou_arrays,
        box_iou_pairs,
        box_pose_error,
        box_symmetry,
        cyclic,
        dihedral,
        pose_error,
        rotation_from_quaternion,
        volumetric_iou,
    )
    from robotrials.measure.geometry.mask import ObjectModel, color_mask
    from robotrials.measure.geometry.reconstruct import (
        MaskSource,
        ObjectCheck,
        Reconstruction,
        ResetCheck,
        ResetFault,
        check_reset,
        identify,
        reconstruct_box,
        reconstruct_boxes,
        score_views,
    )
    from robotrials.measure.geometry.register import Registration, locate_solid
    from robotrials.measure.geometry.score import (
        PlacementScore,
        PlacementSummary,
        PlacementTrial,
        SplitScore,
        SplitSummary,
        expected_iou_over_splits,
        placement_trial,
        recorded_placement,
        score_placement,
        score_recorded_pose,
        summarize_placements,
        with_placement,
    )
    from robotrials.measure.geometry.solid import (
        PlacedSolid,
        SolidModel,
        box_model,
        cloud_model,
        mesh_model,
        pack_solid,
        read_solid,
    )
    from robotrials.measure.geometry.view import (
        STEREO_NOISE,
        RgbdView,
        StereoNoise,
        VoxelCloud,
        fuse_views,
        stereo_depth,
        view_from_camera,
        voxel_iou,
    )

__all__ = [
    'CONE',
    'CYLINDER',
    'NO_SYMMETRY',
    'SPHERE',
    'STEREO_NOISE',
    'Box',
    'Cylinder',
    'MaskSource',
    'ObjectCheck',
    'ObjectModel',
    'PlacedSolid',
    'PlacementScore',
    'PlacementSummary',
    'PlacementTrial',
    'PoseError',
    'Reconstruction',
    'Registration',
    'ResetCheck',
    'ResetFault',
    'RgbdView',
    'Shape',
    'SolidModel',
    'SplitScore',
    'SplitSummary',
    'StereoNoise',
    'Symmetry',
    'VoxelCloud',
    'alignment_angle',
    'alignment_error',
    'box_from_pose',
    'box_iou',
    'box_iou_arrays',
    'box_iou_pairs',
    'box_model',
    'box_pose_error',
    'box_symmetry',
    'check_reset',
    'cloud_model',
    'color_mask',
    'cyclic',
    'dihedral',
    'expected_iou_over_splits',
    'fuse_views',
    'identify',
    'locate_solid',
    'mesh_model',
    'pack_solid',
    'placement_trial',
    'pose_error',
    'read_solid',
    'reconstruct_box',
    'reconstruct_boxes',
    'recorded_placement',
    'rotation_from_quaternion',
    'score_placement',
    'score_recorded_pose',
    'score_views',
    'stereo_depth',
    'summarize_placements',
    'view_from_camera',
    'volumetric_iou',
    'voxel_iou',
    'with_placement',
]

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
